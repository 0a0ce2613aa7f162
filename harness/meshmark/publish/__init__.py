# SPDX-License-Identifier: Apache-2.0
"""Bundles of records for publication: makes one, and checks one as a reviewer would."""
