"""What did not come out as papers print it, one file a paper."""
