"""The CDK half of Firstwrite. It never imports the Lambda package, and the Lambda package never imports it."""
