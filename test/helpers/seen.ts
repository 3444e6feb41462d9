import { expect } from 'vitest';
import type { Facade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot/source';
import { fromUtf8 } from '#protocol/bytes';
import { runLookup, type Lookup } from '#protocol/snapshot/find';
import { recordBody } from '#protocol/snapshot/record';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';

/** Everything that can be asked about. */
export interface Askable {
  proofs: readonly string[];
  packages: readonly string[];
  tokens: readonly string[];
}

/**
 * What a facade says of everything: a status by `<proof id> <kind>` and by package id, and what a
 * token shows by the token.
 */
export type Seen = Record<string, string>;

/** Asks a facade that has just looked for a newer snapshot, over its directory. */
export async function seenBy(
  facade: Facade,
  directory: string,
  { proofs, packages, tokens }: Askable,
): Promise<Seen> {
  await facade.follower.refresh();
  expect(facade.follower.refusal).toBeNull();
  const current = facade.follower.current!;
  const source = directorySource(directory);
  const ask = async <T>(lookup: Lookup<T>): Promise<T> =>
    runLookup(lookup, (wanted) => source.read(wanted));
  const seen: Seen = {};
  try {
    for (const proofId of proofs) {
      const found = await ask(current.proof(proofId, 0));
      for (const kind of ARTIFACT_KINDS) seen[`${proofId} ${kind}`] = statusIn(found, kind);
    }
    for (const packageId of packages) {
      const found = await ask(current.package(packageId.slice('pkg_'.length), 0));
      seen[packageId] = statusIn(found, 'trust');
    }
    for (const token of tokens) {
      const share = await ask(current.share(token));
      if (share === null) seen[token] = 'NOT_FOUND';
      else if (share.artifact_kind === null) seen[token] = 'over';
      else {
        const id = 'package_id' in share ? share.package_id : share.proof_id;
        seen[token] = `${share.artifact_kind} of ${id}`;
      }
    }
    return seen;
  } finally {
    source.close();
  }
}

function statusIn(found: { id: Uint8Array; bytes: Uint8Array } | null, kind: ArtifactKind): string {
  const body = found && recordBody(found.bytes, found.id, kind);
  if (body === null) return 'NOT_FOUND';
  return /"verification_status":"([A-Z_]+)"/.exec(fromUtf8(body.part))?.[1] ?? 'no status';
}
