"""The public calls, one file each. `import extrapolate as xt` has them all, imported on first use."""
