"""One package per phase or service: a light spec, and the work behind it. See `posttrain.contract`."""
