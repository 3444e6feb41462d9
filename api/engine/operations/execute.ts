import { executeReceiptSchema, executeRequestSchema } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  ADMISSION_ANSWER_HEADERS,
  ADMISSION_HEADERS,
  ADMISSION_PROBLEMS,
  admissionResponses,
  admit,
} from '../admission/admit.js';
import { EXECUTE_LANE } from '../admission/lanes.js';
import type { Operation, OperationSpec } from '../operation.js';

const spec: OperationSpec = {
  id: 'executeIntent',
  method: 'post',
  path: '/v1/intents/execute',
  tag: 'Admission',
  summary: 'Admit an execution',
  description:
    'Accepts the execution, waits until it is decided, signed and appended to the log, and returns the receipt. Sending the same body again returns the first receipt, byte for byte, with `Idempotent-Replayed: true`.',
  scopes: ['admit'],
  headers: ADMISSION_HEADERS,
  answerHeaders: ADMISSION_ANSWER_HEADERS,
  body: {
    schema: executeRequestSchema,
    examples: {
      minimal: {
        schema_version: SCHEMA.executeRequest,
        intent_id: 'intent-1',
        tenant_id: 'demo',
        action: 'BOOK_RESERVATION',
      },
    },
  },
  produces: ['application/json'],
  responses: admissionResponses(executeReceiptSchema),
  problems: ADMISSION_PROBLEMS,
};

export const executeOperation: Operation = {
  spec,
  handler: (deps) => admit(deps, { spec, lane: EXECUTE_LANE }),
};
