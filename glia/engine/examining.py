"""Are foreign windows what this model computes? Checks of each one, and computing one again.

    W windows, S block_size, G kv heads, D head_dim

A check is for every window before its first use: its rows look like a model's, and layer 0,
which follows from the tokens alone, is what they give. An audit computes a window again, from
the windows before it as they are claimed, and compares all layers. See spec/16-audit.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch

from glia.engine.canonical import CanonicalModel
from glia.engine.finding import Finding
from glia.engine.layer_zero import LayerZero
from glia.engine.limits import Limits, Off, Pair, Verdict, uncalibrated
from glia.engine.settling import MOST_ULP, most_ulp, settle
from glia.errors import ModelError
from glia.graph.profile import Profile
from glia.kv.dtypes import STORAGE_DTYPES

_log = logging.getLogger("glia.engine")
_ALIKE = 1e-4  # how near the norm of a row of one number is to sqrt(D) times its first


class Examiner:
    """Of one loaded model.

    Args:
        native: layer 0 in the engine's own arithmetic.
        open_canonical: loads the reference; done once, when it is first needed.
        limits: None for a model that was not calibrated.
    """

    def __init__(
        self,
        native: LayerZero,
        open_canonical: Callable[[], CanonicalModel],
        profile: Profile,
        limits: Limits | None = None,
    ) -> None:
        self._native, self._open = native, open_canonical
        self._size = profile.block_size
        self._scheme, self._num_layers = profile.scheme, len(profile.layers)
        self._storage = STORAGE_DTYPES[profile.scheme]
        self.take_limits(limits)

    def take_limits(self, limits: Limits | None) -> None:
        """Use these from now on; None: nobody measured them."""
        self.limits = limits or uncalibrated(self._scheme, self._num_layers)

    @cached_property
    def _canonical(self) -> CanonicalModel:
        return self._open()

    @property
    def is_calibrated(self) -> bool:
        return self.limits.is_calibrated

    def check(
        self,
        tokens: Sequence[int],
        windows: Sequence[torch.Tensor],
        is_canonical: Sequence[bool],
    ) -> list[Finding]:
        """Look at W windows. Args: tokens: W * S; windows: per layer [W, S, G, 2 * D].

        Where the reference cannot be loaded, what needs it is not clean, and nobody's fault.
        """
        found = self._rows(windows)
        for canonical in (False, True):
            chosen = [w for w, kind in enumerate(is_canonical) if kind is canonical]
            chosen = [w for w in chosen if found[w].is_clean]
            if chosen:
                of_these = [t for w in chosen for t in tokens[w * self._size :][: self._size]]
                given = windows[0] if len(chosen) == len(found) else windows[0][chosen]
                for w, finding in zip(
                    chosen, self._layer_zero(of_these, given, canonical), strict=True
                ):
                    found[w] = finding
        return found

    def audit(
        self,
        before: Sequence[torch.Tensor],
        window: Sequence[torch.Tensor],
        tokens: Sequence[int],
        *,
        is_canonical: bool,
    ) -> Finding:
        """Compute a window again. The worst layer is told.

        Args:
            before: per layer [W, S, G, 2 * D], the windows before it as they are claimed.
            window: per layer [S, G, 2 * D], as it is claimed. tokens: its S.
        Raises: PromptError (tokens that this model does not have).
        """
        try:
            if is_canonical:
                settled = settle(self._canonical, before, tokens, window)
                return _settled(settled.most_ulp, "all layers", settled.layer)
            rows = self._expected(before, tokens)
        except ModelError as error:
            return _no_reference(error)
        offs = [_offs(a[None], b[None])[0] for a, b in zip(window, rows, strict=True)]
        return self._worst(offs, "all layers")

    # -- measuring, for limits ----------------------------------------------------------------

    def offs_of(self, windows: Sequence[torch.Tensor], at: int, tokens: Sequence[int]) -> list[Off]:
        """How far one window is from the reference, per layer.

        Of layer 0 from the engine's own arithmetic, as `check` has it.

        Args:
            windows: per layer [W, S, G, 2 * D], from genesis on. tokens: W * S.
        Raises: BadModelFile, ModelRefused.
        """
        own = tokens[at * self._size : (at + 1) * self._size]
        before = [layer[:at] for layer in windows] if at else []
        rows = self._expected(before, own)
        pairs = zip((layer[at] for layer in windows), rows, strict=True)
        return [_offs(a[None], b[None])[0] for a, b in pairs]

    def norms_of(self, windows: Sequence[torch.Tensor]) -> list[tuple[Pair, Pair]]:
        """Per layer, of K and of V, the least and the largest norm of a row of one head."""
        found: list[tuple[Pair, Pair]] = []
        for rows in windows:
            norms = torch.linalg.vector_norm(_halves(rows).float(), dim=-1).flatten(0, -2)
            low, high = norms.amin(0).tolist(), norms.amax(0).tolist()
            found.append(((low[0], high[0]), (low[1], high[1])))
        return found

    def _expected(
        self, before: Sequence[torch.Tensor], tokens: Sequence[int]
    ) -> list[torch.Tensor]:
        """Of a native window, per layer [S, G, 2 * D]; layer 0 in the engine's own arithmetic,
        which is as far off as its neighbours' and not as float64. Raises: ModelError."""
        rows = [*self._canonical.recompute(before, tokens, self._storage).rows]
        rows[0] = self._own_rows(tokens)
        return rows

    def _own_rows(self, tokens: Sequence[int]) -> torch.Tensor:
        """Layer 0 in the engine's own arithmetic, [T, G, 2 * D]; each token is computed once."""
        places = {token: at for at, token in enumerate(dict.fromkeys(tokens))}
        rows = self._native([*places]).to(self._storage)
        return rows if len(places) == len(tokens) else rows[[places[token] for token in tokens]]

    # -- the checks ---------------------------------------------------------------------------

    def _rows(self, windows: Sequence[torch.Tensor]) -> list[Finding]:
        """Rows that no model gives: not finite, all alike, or far from the norms it has."""
        found = [Finding("clean", "rows") for _ in range(len(windows[0]))]
        alike: dict[torch.Size, list[int]] = {}
        for layer, rows in enumerate(windows):
            alike.setdefault(rows.shape, []).append(layer)
        for layers in alike.values():
            self._look_at(layers, [_halves(windows[layer]) for layer in layers], found)
        return found

    def _look_at(
        self, layers: Sequence[int], halves: Sequence[torch.Tensor], found: list[Finding]
    ) -> None:
        """Layers of one shape together, as most of the time would go into single steps.

        Args: halves: of each, [W, S, G, 2, D].
        """
        norms, firsts = _norms(halves)
        low, high = norms.flatten(2, 3).aminmax(dim=2)  # [L, W, 2]
        bad = ~torch.isfinite(high).all(2)
        for at, w in _constant(halves, norms, firsts):
            bad[at, w] = True
        verdict: Verdict = "false" if self.limits.is_calibrated else "differs"
        for at, w in torch.nonzero(bad).tolist():
            found[w] = Finding(verdict, "rows", layers[at])
        if self.limits.norms is not None:
            ranges = torch.tensor([self.limits.norms[layer] for layer in layers])[:, None]
            outside = ((low < ranges[..., 0]) | (high > ranges[..., 1])).any(2)
            for at, w in torch.nonzero(outside).tolist():
                if found[w].is_clean:
                    found[w] = Finding("differs", "norms", layers[at])

    def _layer_zero(
        self, tokens: Sequence[int], given: torch.Tensor, is_canonical: bool
    ) -> list[Finding]:
        if is_canonical:
            try:
                wide = self._canonical.layer_zero(tokens).view(given.shape)
            except ModelError as error:
                return [_no_reference(error)] * len(given)
            return [
                _settled(most_ulp(mine, theirs), "layer 0", 0)
                for mine, theirs in zip(wide, given, strict=True)
            ]
        rows = self._own_rows(tokens).view(given.shape)
        return [self._worst([off], "layer 0") for off in _offs(given, rows)]

    def _worst(self, offs: Sequence[Off], what: str) -> Finding:
        """The largest error for its limit. Args: offs: of layers 0 and on."""
        judged = [self.limits.judge(layer, off) for layer, off in enumerate(offs)]
        layer = max(range(len(judged)), key=lambda at: judged[at].rank)
        worst = judged[layer]
        return Finding(worst.verdict, what, layer, worst.error, worst.limit)


def _no_reference(error: ModelError) -> Finding:
    _log.warning("nothing can be held against the reference: %s", error)
    return Finding("differs", "no reference")


def _halves(rows: torch.Tensor) -> torch.Tensor:
    """K and V apart: [..., 2 * D] -> [..., 2, D]."""
    return rows.reshape(*rows.shape[:-1], 2, -1)


def _norms(halves: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Norms of all rows, and their first numbers. Each layer is read once, into one buffer.

    Args: halves: of each layer, [W, S, G, 2, D]. Returns: [L, W, S, G, 2] each, f32.
    """
    wide = torch.empty(halves[0].shape, dtype=torch.float32)
    norms, firsts = torch.empty(2, len(halves), *wide.shape[:-1])
    for at, rows in enumerate(halves):
        wide.copy_(rows)
        torch.linalg.vector_norm(wide, dim=-1, out=norms[at])
        firsts[at] = wide[..., 0]
    return norms, firsts


def _constant(
    halves: Sequence[torch.Tensor], norms: torch.Tensor, firsts: torch.Tensor
) -> Iterator[tuple[int, int]]:
    """Layers and windows with a row of one number. Their norms say which rows may be: few are
    read again. Args: as `_norms` has them; `firsts` is used up."""
    if_constant = firsts.abs_().mul_(halves[0].shape[-1] ** 0.5)
    may_be = if_constant.sub_(norms).abs_() <= _ALIKE * norms
    for at, w, *row in torch.nonzero(may_be).tolist():
        numbers = halves[at][(w, *row)]
        if (numbers == numbers[0]).all():
            yield at, w


def _offs(given: torch.Tensor, expected: torch.Tensor) -> list[Off]:
    """Per window, how far it is off. Args: [W, S, G, 2 * D] each."""
    wide = torch.float64 if given.dtype is torch.float32 else torch.float32
    a, b = (_halves(rows.to(wide)) for rows in (given, expected))
    off = (a - b).square_().sum((2, 4))  # [W, S, 2]
    size = b.square_().sum((2, 4)).clamp_min_(torch.finfo(wide).tiny)
    whole = (off.sum(1) / size.sum(1)).sqrt_()
    common = (off / size).sqrt_().sort(1).values[:, off.shape[1] // 4]
    pairs = zip(whole.tolist(), common.tolist(), strict=True)
    return [Off((w[0], w[1]), (c[0], c[1])) for w, c in pairs]


def _settled(distance: float, what: str, layer: int) -> Finding:
    """Of class canonical: within half a unit in the last place on whatever machine, or false."""
    verdict: Verdict = "clean" if distance <= MOST_ULP else "false"
    return Finding(verdict, what, layer, distance, MOST_ULP)
