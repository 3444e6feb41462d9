import type * as z from 'zod';
import { fromBase64, fromBase64Url, fromUtf8, isBytes, utf8 } from '../bytes.js';
import { attempt, ProtocolError } from '../errors.js';
import { parseStrict, pointerStep } from '../json.js';
import { proofExportSchema, type ProofExport } from '../schemas/proof-export.js';
import { OFFLINE_FAULTS, type OfflineFault, type OfflineFaultCode } from './result.js';

/** A document as text or as its UTF-8 bytes. */
export type TextOrBytes = string | Uint8Array;

export function readExport(exported: unknown): { document: ProofExport } | { fault: OfflineFault } {
  try {
    const value = isText(exported) ? parseStrict(bytesOf(exported)) : exported;
    const { data, error } = proofExportSchema.safeParse(value);
    return data === undefined ? { fault: formFault(value, error.issues[0]!) } : { document: data };
  } catch (error) {
    return { fault: faultOf(error, 'malformed_export') };
  }
}

function isText(value: unknown): value is TextOrBytes {
  return typeof value === 'string' || isBytes(value);
}

export function bytesOf(text: TextOrBytes): Uint8Array {
  return typeof text === 'string' ? utf8(text) : text;
}

export function textOf(text: TextOrBytes): string {
  return typeof text === 'string' ? text : fromUtf8(text);
}

/** A ProtocolError as a fault; `otherwise` for a code outside the closed set. */
export function faultOf(error: unknown, otherwise: OfflineFaultCode): OfflineFault {
  if (!(error instanceof ProtocolError)) throw error;
  const code = OFFLINE_FAULTS.find((one) => one === error.code) ?? otherwise;
  const { message: detail, pointer } = error;
  return pointer === undefined ? { code, detail } : { code, detail, pointer };
}

const ENCODED: Record<string, (text: string) => Uint8Array> = {
  payload: fromBase64,
  sig: fromBase64,
  path: fromBase64,
  keyid: fromBase64Url,
  key_id: fromBase64Url,
  public_key: fromBase64Url,
};

function formFault(value: unknown, issue: z.core.$ZodIssue): OfflineFault {
  const pointer = issue.path.map((step) => pointerStep(String(step))).join('');
  const fault = (code: OfflineFaultCode, detail = issue.message): OfflineFault => ({
    code,
    detail,
    pointer,
  });
  if (issue.code === 'unrecognized_keys') return fault('unknown_member');
  const member = String(issue.path.findLast((step) => typeof step === 'string'));
  if (member === 'signatures' && issue.path.at(-1) === member) return fault('not_one_signature');
  const found = issue.path.reduce<unknown>((at, step) => (at as never)?.[step], value);
  if (typeof found !== 'string') return fault('malformed_export');
  if (member === 'schema_version') return fault('wrong_schema_version');
  if (member === 'payloadType') return fault('wrong_payload_type');
  const decode = ENCODED[member];
  if (decode !== undefined && attempt(() => decode(found)) === undefined) {
    return fault('malformed_base64', 'not canonical base64');
  }
  return fault('malformed_export');
}
