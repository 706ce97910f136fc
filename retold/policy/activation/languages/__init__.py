"""The reviewed word lists, one TOML file a language. See README.md beside this file for what each list means."""
