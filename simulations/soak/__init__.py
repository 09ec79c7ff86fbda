"""A node under mixed load for a long time: does it keep anything it should not?"""
