"""Fields of RayCluster and RayJob that the files here may use, as KubeRay 1.7.0 defines them, as JSON Schemas.

Written from the operator's custom resource definitions, which are no package; a pod template is checked by the schemas
of Kubernetes itself. A field that is not listed is refused: look it up in the operator's version before adding it.
"""

from typing import Any

_INTEGER = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_BOOLEAN = {"type": "boolean"}
_TEXT = {"type": "string", "minLength": 1}
_ANY_OBJECT = {"type": "object"}


def _object(required: tuple[str, ...] = (), **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def _choice(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


_HEAD_GROUP = _object(("template",), rayStartParams=_TEXTS, labels=_TEXTS, template=_ANY_OBJECT)
_WORKER_GROUP = _object(
    ("groupName", "minReplicas", "maxReplicas", "template"),
    groupName=_TEXT,
    replicas=_INTEGER,
    minReplicas=_INTEGER,
    maxReplicas=_INTEGER,
    idleTimeoutSeconds=_INTEGER,
    rayStartParams=_TEXTS,
    labels=_TEXTS,
    template=_ANY_OBJECT,
)
CLUSTER_SPEC = _object(
    # The operator itself asks for rayVersion where there is a token.
    ("headGroupSpec", "rayVersion"),
    rayVersion=_TEXT,
    authOptions=_object(mode=_choice("disabled", "token"), secretName=_TEXT),
    enableInTreeAutoscaling=_BOOLEAN,
    autoscalerOptions=_object(
        version=_choice("v1", "v2"),
        upscalingMode=_choice("Default", "Aggressive", "Conservative"),
        idleTimeoutSeconds=_INTEGER,
        resources=_ANY_OBJECT,
        securityContext=_ANY_OBJECT,
    ),
    headGroupSpec=_HEAD_GROUP,
    workerGroupSpecs={"type": "array", "items": _WORKER_GROUP},
)
JOB_SPEC = _object(
    ("rayClusterSpec", "entrypoint"),
    entrypoint=_TEXT,
    metadata=_TEXTS,
    submissionMode=_choice("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
    submitterPodTemplate=_ANY_OBJECT,
    backoffLimit=_INTEGER,
    activeDeadlineSeconds={"type": "integer", "minimum": 1},
    preRunningDeadlineSeconds={"type": "integer", "minimum": 1},
    shutdownAfterJobFinishes=_BOOLEAN,
    ttlSecondsAfterFinished=_INTEGER,
    suspend=_BOOLEAN,
    rayClusterSpec=CLUSTER_SPEC,
)
