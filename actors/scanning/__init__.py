"""The way of a scan: windows of rows in order, and the values that belong to them."""
