// The values that a confirmed publish resolves to.

import type { Durability, PublishedBatchFrame, PublishedFrame, ScheduledFrame } from './frames.js';

export type Published = Omit<PublishedFrame, 'type' | 'rid'>;
/** A delayed event: stored, and in its topic when it is due. */
export type Scheduled = Omit<ScheduledFrame, 'type' | 'rid'>;

export interface PublishedBatch {
  topic: string;
  offsets: [partition: number, offset: number][];
  /** In the order of the events, like `offsets`. */
  ids: string[];
  durability: Durability;
}

export function receiptOf(frame: PublishedFrame | ScheduledFrame): Published | Scheduled {
  const { topic, id, durability } = frame;
  if ('due' in frame) return { topic, due: frame.due, id, durability };
  return { topic, partition: frame.partition, offset: frame.offset, id, durability };
}

export function batchReceiptOf(frame: PublishedBatchFrame, ids: string[]): PublishedBatch {
  return { topic: frame.topic, offsets: frame.offsets, ids, durability: frame.durability };
}
