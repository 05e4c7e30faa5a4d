"""`python -m autospec` is `autospec`."""

from autospec.cli.app import main

raise SystemExit(main())
