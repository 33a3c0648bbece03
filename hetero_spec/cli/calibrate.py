# SPDX-License-Identifier: Apache-2.0
"""`hetero-spec calibrate WHAT`: fit something to a pair of models on text, and check it on other text."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

_SUBJECTS = ("calibrate_rdk", "calibrate_lookahead")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the subcommand, and what can be calibrated under it, to the command line."""
    parser = subparsers.add_parser(
        "calibrate",
        help="fit a redistributing kernel or a lookahead to a pair of models",
        description="Fit something to a pair of models on text, and check it on text that the fit has not seen.",
    )
    subjects = parser.add_subparsers(dest="subject", metavar="WHAT", required=True)
    for name in _SUBJECTS:
        if find_spec(f"hetero_spec.cli.{name}") is not None:
            import_module(f"hetero_spec.cli.{name}").add_parser(subjects)
    return parser
