"""Graph passes by subject; `exporter.core.lower.pass_table` lists them."""
