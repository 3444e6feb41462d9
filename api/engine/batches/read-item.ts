import { canonicalize } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { nativeTextHash } from '#runtime/crypto/node';
import type { Lane } from '#sql/admissions/accept';
import {
  AGENT_LANE,
  EXECUTE_LANE,
  type AdmissionBody,
  type AdmissionLane,
  type NamedParent,
} from '../admission/lanes.js';
import type { Caller } from '../http/authenticate.js';
import { requireOwnTenantInBody } from '../http/gates.js';
import { parseDocument, parseJson, unknownVersion } from '../http/parse-body.js';
import { Problem } from '../http/problem.js';
import type { SplitItem } from './split.js';

/** A valid item, except for references that need a query. */
export interface ReadItem {
  lane: Lane;
  request: Buffer;
  /** Lower-case hex. */
  requestHash: string;
  fixtureRef: string | null;
  /** The parent to check in the registry before acceptance. */
  parent: NamedParent | null;
}

/** @throws Problem the one that a single request with this body would get */
export function readItem(item: SplitItem, limit: number, caller: Caller): ReadItem {
  if ('tooLong' in item) {
    throw new Problem('body_too_large', `An item must not be longer than ${String(limit)} bytes.`);
  }
  const value = parseJson(item.bytes);
  const version = isObject(value) ? value['schema_version'] : undefined;
  if (version === EXECUTE_LANE.version) return readAs(EXECUTE_LANE, item.bytes, value, caller);
  if (version !== AGENT_LANE.version) {
    throw unknownVersion(value, [EXECUTE_LANE.version, AGENT_LANE.version]);
  }
  return readAs(AGENT_LANE, item.bytes, value, caller);
}

function readAs<Body extends AdmissionBody>(
  { lane, schema, readPlain, version, fixtureRef, parentOf }: AdmissionLane<Body>,
  request: Buffer,
  value: JsonValue,
  caller: Caller,
): ReadItem {
  const plain = readPlain(value);
  const document = plain?.body ?? parseDocument(schema, value, version);
  requireOwnTenantInBody(document.tenant_id, caller);
  return {
    lane,
    request,
    requestHash: nativeTextHash(plain?.canonical ?? canonicalize(value)),
    fixtureRef: fixtureRef?.(document) ?? null,
    parent: parentOf?.(document) ?? null,
  };
}

function isObject(value: JsonValue): value is Record<string, JsonValue> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
