//! Containers, by the API of Docker Engine or Podman: the one folder that speaks to an engine.
