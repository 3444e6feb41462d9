import { expect } from 'vitest';
import { problemSchema } from '#protocol/schemas/problem';
import type { Reply } from './engine.js';

/** The answer is this problem, in the form that every problem has. */
export function expectProblem(reply: Reply, status: number, code: string): void {
  expect(reply.json).toMatchObject({ status, code, type: `urn:svc:problem:${code}` });
  expect(reply.status).toBe(status);
  expect(reply.headers['content-type']).toBe('application/problem+json');
  problemSchema.parse(reply.json);
  expect(reply.json['request_id']).toBe(reply.headers['x-request-id']);
}
