"""The edge and what is beyond it: applications that read a delivery tier by MQTT and REST together."""
