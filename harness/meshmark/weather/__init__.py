# SPDX-License-Identifier: Apache-2.0
"""What each release of JAX and its compilers changed in compiled programs."""
