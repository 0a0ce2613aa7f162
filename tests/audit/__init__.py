# SPDX-License-Identifier: Apache-2.0
"""The audit of fields: a false value in every field of a published result, and whether the review finds it."""
