"""The public calls. `import extrapolate as xt` has them all, imported on first use."""
