"""What a pipeline needs to run on Kubernetes or YARN, as files: `headwater pipeline submit`."""
