"""The comparison engine: two sides are measured, launch by launch, until every benchmark is decided.

Gates, calibrations, tricks and the doctor call it.
"""
