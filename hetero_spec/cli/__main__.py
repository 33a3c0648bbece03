# SPDX-License-Identifier: Apache-2.0
"""`python -m hetero_spec.cli`."""

import sys

from . import main

sys.exit(main())
