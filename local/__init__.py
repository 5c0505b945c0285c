"""The local cloud: an emulator, the real `cdk deploy` against it, and what the emulator needs on top."""
