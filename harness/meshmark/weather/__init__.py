# SPDX-License-Identifier: Apache-2.0
"""Shows the changes in compiled programs from release to release of JAX and its compilers."""
