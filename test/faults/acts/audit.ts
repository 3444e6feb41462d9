import { parseEntry } from '#protocol/entries';
import { fromUuid, packageIdOf } from '#sql/db/columns';
import type { Audited } from '../audit.js';
import type { Client } from '../client.js';
import { forEach } from '../for-each.js';
import { readStatuses } from '../public.js';
import type { World } from '../world.js';
import type { Act } from './act.js';
import { Erasure } from './erasure.js';
import { Package } from './package.js';
import { Revocation } from './revocation.js';
import { ShareToken } from './share-token.js';

/** No request other than an admission is lost or duplicated. */
export async function auditActs(
  world: World,
  client: Client,
  acts: readonly Act[],
  found: Audited,
): Promise<void> {
  await forEach(acts, async (act) => {
    await act
      .audit(world, found)
      .catch((error: unknown) => found.lost.push(`${act.what}: ${String(error)}`));
    for (const { path, said, status } of await readStatuses(
      world.publicUrl,
      act.expectedStatuses(),
    )) {
      if (said === status) continue;
      found.wrong.push(`after ${act.what} the public status of ${path} is ${said}, not ${status}`);
    }
  });
  await auditRevocations(world, client, found);
  await auditRows(world, client, found);
  await auditTokens(world, client, found);
}

/** The log contains each requested revocation once, and no other. */
async function auditRevocations(world: World, client: Client, found: Audited): Promise<void> {
  const rows = await world.database.sql<{ body: Buffer }[]>`
    select body from svc.log_entry where kind = 2`;
  const left = new Set(
    client.acts.asked
      .filter((act) => act instanceof Revocation)
      .map(({ single, kind }) => `${kind} of ${single.proofId ?? ''}`),
  );
  for (const { body } of rows) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    const name = `${entry.artifact_kind} of ${entry.proof_id}`;
    if (!left.delete(name))
      found.double.push(`the log revokes the ${name} again, or without a request`);
  }
  for (const name of left) found.lost.push(`the log does not revoke the ${name}`);
}

/** So has the registry each package and each erasure. */
async function auditRows(world: World, client: Client, found: Audited): Promise<void> {
  const { asked } = client.acts;
  const { sql } = world.database;
  const packages = await sql<{ id: string }[]>`
    select package_id::text as id from svc.trust_package`;
  const erased = await sql<{ id: string }[]>`
    select proof_id::text as id from svc.erasure
    union select proof_id::text from svc.intake where request is null`;
  const hold = (there: string[], promised: (string | null)[], what: string): void => {
    const wanted = new Set(promised);
    for (const id of there)
      if (!wanted.has(id)) found.double.push(`${what} ${id} was never requested`);
    for (const id of promised) {
      if (!there.includes(id ?? '')) found.lost.push(`${what} ${id ?? ''} is not there`);
    }
  };
  hold(
    packages.map(({ id }) => packageIdOf(id)),
    asked.filter((act) => act instanceof Package).map(({ packageId }) => packageId),
    'package',
  );
  hold(
    erased.map(({ id }) => fromUuid(id)),
    asked.filter((act) => act instanceof Erasure).map(({ proofId }) => proofId),
    'erasure',
  );
}

/**
 * Tokens that nobody was told of are no more than requests that were not answered. Their owner ends
 * them, by the list, as it is told to.
 */
async function auditTokens(world: World, client: Client, found: Audited): Promise<void> {
  const tokens = client.acts.asked.filter((act) => act instanceof ShareToken);
  const known = new Set(tokens.map(({ tokenHash }) => tokenHash));
  const unknown = tokens.reduce((sum, token) => sum + token.unknown, 0);
  const rows = await world.database.sql<{ hash: string; is_revoked: boolean }[]>`
    select encode(token_hash, 'hex') as hash,
      exists (select from svc.share_revocation r where r.token_hash = t.token_hash) as is_revoked
    from svc.share_token t`;
  const unacknowledged = rows.filter(({ hash }) => !known.has(hash));
  if (unacknowledged.length > unknown) {
    found.double.push(`${String(unacknowledged.length - unknown)} unrequested share tokens`);
  }
  const live = unacknowledged.filter((row) => !row.is_revoked);
  if (live.length === 0) return;
  const listed = await listedTokens(client);
  for (const { hash } of live) {
    if (!listed.has(hash)) found.wrong.push(`share token ${hash} is live and not in the list`);
    const [status] = await client.call(
      `${client.urlFor({ n: 0, attempts: 0 })}/v1/share-tokens/${hash}`,
      'DELETE',
    );
    if (status !== 204) found.wrong.push(`share token ${hash} cannot be ended: ${String(status)}`);
  }
}

async function listedTokens(client: Client): Promise<Set<string>> {
  const url = `${client.urlFor({ n: 0, attempts: 1 })}/v1/share-tokens?limit=200`;
  const hashes = new Set<string>();
  for (let cursor: string | null = ''; cursor !== null;) {
    const [, text] = await client.call(cursor === '' ? url : `${url}&cursor=${cursor}`, 'GET');
    const page = JSON.parse(text) as {
      share_tokens: { token_hash: string }[];
      next_cursor: string | null;
    };
    for (const token of page.share_tokens) hashes.add(token.token_hash);
    cursor = page.next_cursor;
  }
  return hashes;
}
