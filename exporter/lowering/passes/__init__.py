"""Graph passes by subject; `exporter.lowering.pass_table` lists them."""
