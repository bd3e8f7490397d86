"""The comparison engine: two sides, measured launch by launch until every benchmark is decided.

Gates, calibrations, tricks and the doctor are callers of it.
"""
