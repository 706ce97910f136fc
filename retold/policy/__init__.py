"""The rules: what may be decided and how. Pure, except through the ports of `retold.policy.ports`."""
