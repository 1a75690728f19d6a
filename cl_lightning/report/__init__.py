"""What is made of result files: nothing here knows of learners."""
