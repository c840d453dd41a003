"""The experiments of the papers that Headwater builds on, run again: `headwater reproduce NAME`."""
