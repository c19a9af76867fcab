"""Graph passes, one per file; `exporter.lowering.pass_table` lists them."""
