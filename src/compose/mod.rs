//! The pod as data in, `compose.yaml` out, and the checks of both legs of the forward.
