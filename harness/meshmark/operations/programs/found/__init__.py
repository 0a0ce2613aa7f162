# SPDX-License-Identifier: Apache-2.0
"""Programs that the hunt found (`results/findings`)."""
