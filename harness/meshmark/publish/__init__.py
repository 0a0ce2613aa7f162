"""Bundles of records that can be published: making one, and checking one as a reviewer would."""
