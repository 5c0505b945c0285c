"""Race-free serverless on DynamoDB conditional writes: a single-flight cache and exact claims on limited stock."""
