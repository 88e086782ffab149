"""Road networks: read from files, as a space with the distance along roads, and for predictions.

OpenStreetMap's files (.osm.pbf, .osm) need `pip install 'hereish[roads]'`; GeoJSON and CSV do not.
"""

from hereish.roads.building import graph_from_lines
from hereish.roads.graph import RoadGraph
from hereish.roads.map_matching import RoadPrediction
from hereish.roads.reading import load_roads, read_roads, save_roads
from hereish.roads.road_network import RoadNetwork

__all__ = [
    "RoadGraph",
    "RoadNetwork",
    "RoadPrediction",
    "graph_from_lines",
    "load_roads",
    "read_roads",
    "save_roads",
]
