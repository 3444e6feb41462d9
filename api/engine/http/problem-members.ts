import * as z from 'zod';
import { agentReceiptSchema } from '#protocol/schemas/agent';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import type { ProblemCode } from './problem.js';

/** What some problems carry besides the members that all of them have. */
export const PROBLEM_MEMBERS: Partial<Record<ProblemCode, z.ZodObject>> = {
  policy_denied: z.looseObject({
    /** A denial is signed and in the log like an admission; its receipt says so. */
    receipt: z.union([executeReceiptSchema, agentReceiptSchema]),
    /** The policies that decided, sorted. */
    reasons: z.array(z.string()),
    /** What some of them say to people, by policy. */
    sentences: z.record(z.string(), z.string()),
  }),
};

/** Headers that come with a problem, each with what it says. */
export const PROBLEM_HEADERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  unauthenticated: { 'WWW-Authenticate': 'How to authenticate: `ApiKey`.' },
  unsupported_media_type: { Accept: 'The media type that is taken.' },
  unsupported_content_encoding: { 'Accept-Encoding': '`identity`: send the body as it is.' },
  pending_checkpoint: { 'Retry-After': 'Seconds to wait before asking again.' },
  rate_limited: { 'Retry-After': 'Seconds until the next request is allowed.' },
  database_unavailable: { 'Retry-After': 'Seconds to wait before trying again.' },
  tenant_busy: { 'Retry-After': 'Seconds to wait before trying again.' },
  upload_too_slow: {
    'Retry-After': 'Seconds to wait before trying again.',
    Connection: '`close`: the rest of the body is not read.',
  },
  policy_missing: { 'Retry-After': 'Seconds to wait before trying again.' },
};
