from autospec.cli.app import main

raise SystemExit(main())
