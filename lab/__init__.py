"""The lab: drives the races against any deployment, checks every outcome, draws what happened."""
