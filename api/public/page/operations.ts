import * as z from 'zod';
import type { OperationSpec } from '../../openapi/operation-spec.js';
import type { Handler, Operation } from '../operation.js';
import { getIcon, getPage, getScript, getStyle } from '../page.js';

const ETAG = { ETag: 'Strong; send it back in `If-None-Match`.' };
const asked = (description: string) => z.string().optional().meta({ description });
const html = (description: string): OperationSpec['responses'][number] => ({
  description,
  content: { 'text/html': 'text' },
});

const asset = (id: string, path: string, type: string, handler: Handler): Operation => ({
  spec: {
    id,
    method: 'get',
    path,
    tag: 'Page',
    summary: `Of the page: ${path.slice(path.lastIndexOf('/') + 1)}`,
    responses: {
      200: {
        description: 'A file that the page loads.',
        content: { [type]: 'text' },
        headers: ETAG,
      },
      304: { description: 'Not changed since the ETag that was sent.' },
    },
    problems: [],
  },
  handler,
});

export const PAGE_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'page',
      method: 'get',
      path: '/',
      tag: 'Page',
      summary: 'A verdict as a page for people',
      description:
        'Without an identifier a form. With one the answer of the JSON route that the identifier belongs to, ' +
        'in words; errors are pages too.',
      query: z.object({
        id: asked('The identifier to show the verdict on.'),
        identifier: asked('The same, by the name that the JSON route has for it.'),
        q: asked('The same.'),
      }),
      fromSnapshot: true,
      answerHeaders: {
        'X-Robots-Tag': '`noindex`: what somebody looked up is no business of a search engine.',
      },
      responses: {
        200: { ...html('The form, or the verdict.'), headers: ETAG },
        304: { description: 'Not changed since the ETag that was sent.' },
        400: html('There are several identifiers, or one that is too long.'),
        404: html('The registry has no such proof.'),
        503: {
          ...html('Nothing can be asserted at the moment.'),
          headers: { 'Retry-After': 'Seconds to wait before trying again.' },
        },
      },
      problems: [],
    },
    handler: getPage,
  },
  asset('pageStyle', '/page/style.css', 'text/css', getStyle),
  asset('pageScript', '/page/copy.js', 'text/javascript', getScript),
  asset('pageIcon', '/page/icon.svg', 'image/svg+xml', getIcon),
];
