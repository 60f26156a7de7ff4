"""The bundled distributed trainer: a YAML configuration and the launcher's environment enter, a trained model,
checkpoints of two tiers and a step journal leave. Sees core and trainer_integration only.
"""
