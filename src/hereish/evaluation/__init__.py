"""The paper's case study on anybody's data: trajectories, query traces, experiments, tuning."""
