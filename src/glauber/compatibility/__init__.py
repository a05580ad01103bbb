"""Could one joint law own these conditionals?"""

from glauber.compatibility.corners import Reading, read_rectangle
from glauber.compatibility.draw import Drawn, draw
from glauber.compatibility.rectangles import Rectangles, rectangles
from glauber.compatibility.study import RectangleStudy, rectangle_study, rectangles_of_model

__all__ = [
    "Drawn",
    "Reading",
    "RectangleStudy",
    "Rectangles",
    "draw",
    "read_rectangle",
    "rectangle_study",
    "rectangles",
    "rectangles_of_model",
]
