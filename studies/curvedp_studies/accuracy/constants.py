"""Every constant of the rule with its reason: the table of docs/rule.md."""

from __future__ import annotations

from curvedp.mechanisms.rule import Rule

REASONS = {
    "count_share": "n̂: everything below is in units of it. Nothing under `replace`: n is public",
    "column_share": "sixteen cells of every number: does it fill its bounds, is it rarely far from the rest",
    "extent_share": "one quantile: records may be far shorter than their bound, persons longer than one row",
    "pilot_share": "the metric in which S is released: in a poor one records are long, and S pays for that",
    "length_share": "one quantile is all it gives",
    "curvature_share": "S has to be good to a factor, not exact: rounds correct what it gets wrong",
    "spread_share": "one number, to a factor of two: how far noise may diffuse",
    "scale_share": "one number, to a factor of two: targets far below their bound have short gradients",
    "clip_share": "one quantile, at a finer scale than the first clip",
    "bread_share": "of intervals: Ĵ decides how far the last step goes, and S already knows its shape",
    "tail_share": "of intervals: one histogram says how many records the clip shortens, and by how much",
    "meat_share": "of intervals: a covariance that is shrunk towards Ĵ",
    "beyond_share": "of intervals: its noise is what the bias of the clip is known by",
    "first_share": "of the rounds' μ²: enough to find the neighbourhood, the rest averages there",
    "constant": "reach, least and most share for the mean response: (reach/n̂μ)²",
    "centre": "likewise for a second look at it, of squared losses, with a narrower clip",
    "evidence": "likewise for how much the fit explains beyond the constant answer",
    "rounds": "where noise rules: the more rounds, the smaller the steps, and noise averages out",
    "first_rounds": "a quarter of them",
    "step": "a damped Newton step: the curvature of clipped records is known to a factor only",
    "plenty": "the κ from which noise matters less than convergence",
    "quick_rounds": "Newton steps contract: a few do",
    "quick_first_rounds": "a quarter of them",
    "quick_step": "bolder, where the curvature of a loss is mostly below its bound; `step` of squared losses",
    "travel": "of the way on which noise gathers as much as there is to explain: about one",
    "first_travel": "the first clip is chosen without a look at θ: no reason to go far with it",
    "momentum": "at most: lengthens the way of so few steps, where the data allow it",
    "weight": "of the t-th later round, t^weight: the first of them still come from afar",
    "large": "the κ from which the last rounds decide: noise is no reason to average there",
    "precise": "the κ from which S resolves everything in the given coordinates, and a pilot is a waste",
    "unseen": "of what is explained: a column that moves less, and whose variation is noise, gets 0",
    "sure": "the κ from which noise cannot make a linear fit worse than the constant answer",
    "sure_class": "the κ·q(1 − q) from which it cannot, of two classes, the rarer of share q",
    "least_kappa": "the κ below which Ĵ is noise: what intervals would cost goes to the rounds",
    "most_hidden": "of all records: where noise hides more in a cell, columns are not looked at",
    "level": "in units of n̂/d: with so many records more, no level's records are very long in the metric",
    "pilot_level": "likewise in the metric of the pilot: S does not shorten the records of rare levels",
    "pilot_floor": "lift of eigenvalues, in units of the noise: less trusts noise, more blurs the pilot",
    "floor": "lift of eigenvalues, in units of the noise: less trusts noise, more blurs S",
    "kept_lengths": "records longer than this quantile are shortened in S: they would set its noise",
    "clipped": "times dρ/μ records are clipped later: their bias is then of the size of the noise",
    "doubt": "deviations of the noise: in doubt the smaller clip, for too wide a one costs all records noise",
    "doubted_scale": "of squared losses: deviations by which the typical gradient is thought shorter",
    "kept": "of all records, never clipped: a clip below the median gradient turns means into medians",
    "first_clip": "in units of the typical gradient at θ = 0: far from the end noise counts more than bias",
    "class_clip": "likewise of classes, over √2 under `replace`: their slopes are alike",
    "blind_clip": "likewise of all rounds where no histogram can choose; others stay near; over √2, too",
    "first_kept": "what such a clip is believed to leave alone once θ is near",
    "widest_clip": "in the same units: the longest gradient that a histogram tells apart",
    "edges": "of a histogram, a factor √2 apart",
}
"""One for every field of `Rule`."""


def constants_table(rule: Rule) -> list[str]:
    rows = [f"| `{name}` | {_shown(value)} | {REASONS[name]} |" for name, value in vars(rule).items()]
    return ["| constant | value | reason |", "|---|---|---|", *rows]


def _shown(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{part:g}" for part in (value if isinstance(value, tuple) else (value,)))
