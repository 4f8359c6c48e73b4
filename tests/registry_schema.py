"""The fields of the registry of deployments of differential privacy (OpenDP), as a JSON Schema of our own.

Names, kinds and enumerations are facts of its `deployments-schema.yaml` as of September 2026.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}


def among(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


def table(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


CURATOR = table(
    {"data_curator_name": TEXT, "data_curator_type": among("Government", "Industry", "Nonprofit")}
)
BASIC = table(
    {
        "name": TEXT,
        "data_curators": {"type": "array", "minItems": 1, "items": CURATOR},
        "description": TEXT,
        "intended_use": TEXT,
        "data_product_type": among(
            *("Summary statistics", "Machine learning model", "Dataset"),
            *("Synthetic data", "Interactive API", "SQL queries"),
        ),
        "data_product_region": TEXT,
        "publication_date": {"type": "string", "format": "date"},
    },
    {
        "data_product_sector": among(
            "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"
        )
    },
)
VARIANT = table(
    {},
    {
        "variant_name": among("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
        "data_domain": TEXT,
        "unprotected_quantities": TEXT,
    },
)
PARAMETERS = table(
    {}, {"epsilon": {"type": "number"}, "delta": {"type": ["number", "string"]}, "rho": {"type": "number"}}
)
LOSS = table(
    {},
    {
        "privacy_unit": TEXT,
        "privacy_unit_details": TEXT,
        "number_of_privacy_units": {"type": "integer"},
        "privacy_parameters": PARAMETERS,
        "privacy_parameters_details": TEXT,
    },
)
MODEL = table(
    {},
    {
        "model_name": among("Local", "Central", "Shuffle", "Federated", "Varies"),
        "model_name_details": TEXT,
        "trust_assumptions": TEXT,
        "actors": TEXT,
        "release_type": among("One release", "Many releases"),
        "release_type_details": TEXT,
        "data_source_type": among("Static", "Dynamic"),
        "data_source_type_details": TEXT,
        "access_type": among("Interactive", "Non-interactive"),
        "access_type_details": TEXT,
    },
)
_TEXTS = (
    *("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing"),
    *("justification", "utility", "additional_information"),
)
IMPLEMENTATION = table({}, dict.fromkeys(_TEXTS, TEXT))
ADMINISTRATIVE = table(
    {
        "status": among(
            *("Converted", "Draft", "Pending", "Changes Required", "Approved"),
            *("Approved (Update Requested)", "Approved (Pending)"),
        ),
        "registry_authors": {"type": "array", "minItems": 1, "items": TEXT},
        "tier": {"enum": [1, 2, 3]},
    },
    {"evidence_sources": {"type": "object"}},
)
REGISTRY = table(
    {
        "url_slug": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "deployment": table(
            {"basic": BASIC, "administrative": ADMINISTRATIVE},
            {
                "dp_variant": VARIANT,
                "privacy_loss": LOSS,
                "deployment_model": MODEL,
                "implementation": IMPLEMENTATION,
            },
        ),
    }
)
LEFT_OUT = {
    "model_name_details",
    "data_source_type_details",
    "evidence_sources",
    "rho",
}

ANSWERS: dict[str, Any] = {  # what an operator might answer
    "data_curator_name": "the register",
    "data_curator_type": "Government",
    "data_product_sector": "Government",
    "number_of_privacy_units": 1000,
    "data_source_type": "Static",
    "publication_date": "2026-01-31",
}
