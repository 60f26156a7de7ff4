"""The command line: one file a subcommand; enters arguments, leaves exit codes, printed results and one-line errors."""
