# SPDX-License-Identifier: Apache-2.0
"""Errors that are the user's to mend."""


class UsageError(Exception):
    """Printed as one line; the command ends with exit code 2."""
