import * as z from 'zod';
import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import {
  createdShareTokenSchema,
  type ListedShareToken,
  packageIdSchema,
  packageListSchema,
  packageRequestSchema,
  packageSchema,
  type Revocation,
  revocationRequestSchema,
  revocationSchema,
  revocationStatusSchema,
  type ShareTokenRequest,
  shareTokenListSchema,
  shareTokenRequestSchema,
  type TrustPackage,
} from '../../protocol/schemas/lifecycle.js';
import {
  artifactKindSchema,
  hashSchema,
  proofIdSchema,
} from '../../protocol/schemas/primitives.js';
import type { ArtifactKind } from '../../protocol/status.js';
import { readAbout, readDocument, unexpected, validBody, validInput } from '../http/answers.js';
import { type Answer, type Deadline, withDeadline } from '../http/attempt.js';
import type { EngineOptions } from '../options.js';
import { pause } from './admission.js';
import { openEngine } from './engine.js';
import { itemsOf } from './pages.js';

const artifactSchema = z.strictObject({
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
});

/** An artifact of a proof. */
export interface ArtifactInput {
  proof_id: string;
  artifact_kind: ArtifactKind;
}

/** The artifact, why it is revoked, and by whom. Reason and actor stay private. */
export type RevocationInput = ArtifactInput &
  Omit<z.infer<typeof revocationRequestSchema>, 'schema_version'>;

/**
 * `POST /v1/proofs/{proof_id}/revocations`: revokes an artifact, and every artifact that depends on it,
 * permanently. Returns the revocation once it is in the log. Revoking again returns the first revocation,
 * so a retry is safe.
 */
export async function revokeArtifactHttp(
  options: EngineOptions,
  { proof_id, ...request }: RevocationInput,
): Promise<Revocation> {
  const document = { schema_version: SCHEMA.revocationRequest, ...request };
  const body = validBody(revocationRequestSchema, document);
  const artifact = validInput(artifactSchema, { proof_id, artifact_kind: request.artifact_kind });
  const path = `/v1/proofs/${proof_id}/revocations`;
  const engine = openEngine(options);
  return withDeadline(options, async (deadline) => {
    const answer = await engine.read({ method: 'POST', path, body, expected: FOLLOWED }, deadline);
    return followRevocation(options, artifact, answer, deadline);
  });
}

/** `GET /v1/proofs/{proof_id}/revocations/{artifact_kind}`: throws `not_found` if the artifact is not revoked. */
export async function readRevocationHttp(
  options: EngineOptions,
  input: ArtifactInput,
): Promise<Revocation> {
  const artifact = validInput(artifactSchema, input);
  return withDeadline(options, async (deadline) => {
    const answer = await readRevocation(options, artifact, deadline);
    return followRevocation(options, artifact, answer, deadline);
  });
}

const readRevocation = (
  options: EngineOptions,
  { proof_id, artifact_kind }: ArtifactInput,
  deadline: Deadline,
): Promise<Answer> => {
  const path = `/v1/proofs/${proof_id}/revocations/${artifact_kind}`;
  return openEngine(options).read({ method: 'GET', path, expected: FOLLOWED }, deadline);
};

/** 202: the revocation is not in the log yet. */
const FOLLOWED = [200, 201, 202];

async function followRevocation(
  options: EngineOptions,
  artifact: ArtifactInput,
  first: Answer,
  deadline: Deadline,
): Promise<Revocation> {
  for (let answer = first; ; answer = await readRevocation(options, artifact, deadline)) {
    if (answer.status !== 202) return readAbout(answer, revocationSchema, 'artifact', artifact);
    readAbout(answer, revocationStatusSchema, 'artifact', artifact);
    await pause(answer.headers, deadline);
  }
}

/** An artifact of a proof, or a package, and optionally an expiry. */
export type ShareTokenInput = ShareTokenRequest extends infer R
  ? R extends ShareTokenRequest
    ? Omit<R, 'schema_version'>
    : never
  : never;

/** A share token, and the artifact or package that it shows. */
export type CreatedShareToken = z.infer<typeof createdShareTokenSchema>;

/**
 * `POST /v1/share-tokens`: creates a token that shows one artifact, or one package, to anyone who has it.
 * The service stores only its hash, so no later response has the token.
 *
 * Never retries, because each request creates another token. After `aborted`, `timeout`, `network`, `unavailable` or
 * `engine_failed`, list the tokens, and revoke those that you did not receive.
 */
export async function createShareTokenHttp(
  options: EngineOptions,
  input: ShareTokenInput,
): Promise<CreatedShareToken> {
  const engine = openEngine({ ...options, retry: { ...options.retry, attempts: 1 } });
  const document = { schema_version: SCHEMA.shareTokenRequest, ...input };
  const body = validBody(shareTokenRequestSchema, document);
  const request = { method: 'POST', path: '/v1/share-tokens', body, expected: [201] } as const;
  const answer = await engine.read(request);
  const made = readDocument(answer, createdShareTokenSchema);
  const isOf = made.token_hash === hashHex(nobleSha256, made.share_token);
  const isInTime = made.expires_at === (input.expires_at ?? null);
  if (isOf && isInTime && sharedId(made) === sharedId(input)) return made;
  throw unexpected(answer, 'the response does not match the requested share token');
}

type Shared = ArtifactInput | { artifact_kind: 'package'; package_id: string };

const sharedId = (one: Shared): string =>
  `${one.artifact_kind} ${'package_id' in one ? one.package_id : one.proof_id}`;

/** `GET /v1/share-tokens`: the tenant's share tokens, the newest first, each with its hash only. */
export function listShareTokensHttp(
  options: EngineOptions,
): AsyncGenerator<ListedShareToken, void, undefined> {
  return itemsOf(options, '/v1/share-tokens', shareTokenListSchema, (page) => page.share_tokens);
}

/** `DELETE /v1/share-tokens/{token_hash}`: the token no longer resolves from the next snapshot on. */
export async function revokeShareTokenHttp(
  options: EngineOptions,
  input: { token_hash: string },
): Promise<void> {
  const { token_hash } = validInput(z.object({ token_hash: hashSchema }), input);
  const path = `/v1/share-tokens/${token_hash}`;
  await openEngine(options).read({ method: 'DELETE', path, expected: [204] });
}

/**
 * `POST /v1/packages`: one public id for 1 to 100 admissions, in this order. The same proofs in the same
 * order return the same package.
 */
export async function createPackageHttp(
  options: EngineOptions,
  input: { proof_ids: readonly string[] },
): Promise<TrustPackage> {
  const document = { schema_version: SCHEMA.packageRequest, ...input };
  const body = validBody(packageRequestSchema, document);
  const request = { method: 'POST', path: '/v1/packages', body, expected: [200, 201] } as const;
  const answer = await openEngine(options).read(request);
  const made = readDocument(answer, packageSchema);
  if (made.proof_ids.join() === input.proof_ids.join()) return made;
  throw unexpected(answer, 'the response is not about the requested package');
}

/** `GET /v1/packages`: the tenant's packages, the newest first. */
export function listPackagesHttp(
  options: EngineOptions,
): AsyncGenerator<Omit<TrustPackage, 'schema_version'>, void, undefined> {
  return itemsOf(options, '/v1/packages', packageListSchema, (page) => page.packages);
}

/** `GET /v1/packages/{package_id}`. */
export async function readPackageHttp(
  options: EngineOptions,
  input: { package_id: string },
): Promise<TrustPackage> {
  const { package_id } = validInput(z.object({ package_id: packageIdSchema }), input);
  const request = { method: 'GET', path: `/v1/packages/${package_id}` } as const;
  const answer = await openEngine(options).read(request);
  return readAbout(answer, packageSchema, 'package', { package_id });
}
