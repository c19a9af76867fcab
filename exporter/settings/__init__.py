"""Settings: a frozen dataclass declares types, limits, defaults, help texts, flags and TOML keys."""
