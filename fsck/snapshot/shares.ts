import { equalBytes, fromBase64, fromHex, toHex } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { canonicalBytes, type JsonValue } from '#protocol/json';
import { mapRoot } from '#protocol/map/nodes';
import { decodeLeaves, decodeRefs, type Leaf, type PageId } from '#protocol/map/page';
import { SCHEMA } from '#protocol/schemas/ids';
import { pageIdOf, pagePath, type OpenedLocation } from '#protocol/snapshot/location';
import { packageMapKey, shareMapKey } from '#protocol/evidence/shares';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { CheckedPackage, CheckedToken } from '#sql/fsck/lifecycle';
import type { RegistryContext } from '../registry/context.js';
import { allPackages, allTokens } from '../registry/lifecycle.js';
import type { SnapshotContext } from './heads.js';

type JsonObject = Record<string, JsonValue>;

/** The longest time between the recorded time of a change and the commit of its transaction. */
const COMMITTED_WITHIN_MS = 60_000;

/** The leaves of the map of shares and packages, by key in hex; null when a page is lost. */
export async function readShares(
  ctx: SnapshotContext,
  { location, snapshot }: OpenedLocation,
): Promise<Map<string, Uint8Array> | null> {
  const leaves: Leaf[] = [];
  const head = pageIdOf(location.shares);
  if (head !== null && !(await readPages(ctx, head, leaves))) {
    ctx.findings.unchecked('published share tokens and packages');
    return null;
  }
  const root = mapRoot(nativeSha256, leaves);
  if (!equalBytes(root, fromBase64(snapshot.shares_root))) {
    const expected = `pages of a map whose root is ${snapshot.shares_root}`;
    ctx.findings.add('shares_root_differs', 'lookup/snapshot', expected);
  }
  return new Map(leaves.map(({ key, record }) => [toHex(key), record]));
}

/** Collects the leaves below a page, in order; returns false when a page is lost. */
async function readPages(ctx: SnapshotContext, page: PageId, leaves: Leaf[]): Promise<boolean> {
  const path = pagePath(page);
  const bytes = await ctx.files.read(path);
  if (bytes === null) {
    ctx.findings.add('map_page_missing', path, 'a page of the map of shares');
    return false;
  }
  try {
    if (!equalBytes(nativeSha256(bytes), page.digest))
      throw new ProtocolError('malformed_map_page', '');
    if (page.level === 0) {
      leaves.push(...decodeLeaves(nativeSha256, bytes));
      return true;
    }
    for (const below of decodeRefs(page.level, bytes)) {
      if (!(await readPages(ctx, below, leaves))) return false;
    }
    return true;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    ctx.findings.add('map_page_altered', path, 'bytes whose SHA-256 is the name of the file');
    return false;
  }
}

/**
 * Compares published shares and packages with the registry. A snapshot has every change up to
 * `share_change`, which are all changes committed before the snapshot, except packages that wait for a
 * member.
 */
export async function compareShares(
  ctx: SnapshotContext,
  registry: RegistryContext,
  opened: OpenedLocation,
  published: ReadonlyMap<string, Uint8Array>,
): Promise<void> {
  const { add } = ctx.findings;
  const { share_change: last } = opened.location;
  const size = opened.snapshot.logs[0]!.size;
  const due = parseTime(opened.snapshot.logs[0]!.expired_through) - COMMITTED_WITHIN_MS;
  const unknown = new Set(published.keys());
  const compare = (
    key: string,
    where: string,
    change: number,
    at: Date,
    wanted: JsonObject | null,
  ) => {
    unknown.delete(key);
    const record = published.get(key);
    if (change > last) {
      if (record === undefined && wanted !== null && at.getTime() <= due) {
        add('share_record_missing', where, 'a record: the change is older than the snapshot');
      }
      return;
    }
    const expected = wanted === null ? undefined : canonicalBytes(wanted);
    if (expected === undefined ? record === undefined : record && equalBytes(record, expected))
      return;
    const described =
      wanted === null ? 'no record: the token is revoked or expired' : JSON.stringify(wanted);
    if (record === undefined) add('share_record_missing', where, 'a record');
    else add('share_record_differs', where, described);
  };
  for await (const tokens of allTokens(registry)) {
    for (const token of tokens) {
      const key = toHex(shareMapKey(fromHex(token.tokenHash)));
      const where = `map of shares, token_hash=${token.tokenHash}`;
      compare(key, where, token.lastChange, token.changedAt, shareOf(token));
    }
  }
  for await (const packages of allPackages(registry)) {
    for (const one of packages) {
      const key = toHex(packageMapKey(one.packageId));
      const isWaiting = one.newestLeaf === null || one.newestLeaf >= size;
      if (isWaiting && !published.has(key)) continue;
      const where = `map of shares, package_id=${one.packageId}`;
      compare(key, where, one.change, one.madeAt, packageOf(one));
    }
  }
  for (const key of unknown) {
    add('share_record_unknown', `map of shares, key ${key}`, 'a token or package of the registry');
  }
}

function shareOf({ tokenHash, target, isRevoked, expiredAt }: CheckedToken): JsonObject | null {
  if (isRevoked || expiredAt !== null) return null;
  const id = 'packageId' in target ? target.packageId : target.proofId;
  const { artifactKind: artifact_kind } = target;
  return { schema_version: SCHEMA.shareRecord, token_hash: tokenHash, artifact_kind, id };
}

const packageOf = ({ packageId, proofIds }: CheckedPackage): JsonObject => ({
  schema_version: SCHEMA.packageRecord,
  package_id: packageId,
  members: proofIds,
});
